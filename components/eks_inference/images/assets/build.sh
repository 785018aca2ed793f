#!/bin/sh
# Second step of an image build, in the rootless BuildKit image: build what prepare.sh has laid out, and push it.
#
# Reads   IMAGE, STATE and DOCKER_CONFIG as prepare.sh does; arguments are further ones of buildctl build.
set -eu

say() { echo "build: $*"; }

if [ -e "$STATE/exists" ]; then
    say "$IMAGE is there already"
    exit 0
fi

# A node that forbids user namespaces would fail with "no space left on device".
if [ "$(cat "${USER_NAMESPACES:-/proc/sys/user/max_user_namespaces}")" = 0 ]; then
    say "this node forbids user namespaces (sysctl user.max_user_namespaces is 0), which a build without root needs" >&2
    exit 1
fi

say "building $IMAGE"
buildctl-daemonless.sh build \
    --progress plain \
    --frontend dockerfile.v0 \
    --local "context=$STATE/context" \
    --local "dockerfile=$STATE/context" \
    --output "type=image,name=$IMAGE,push=true" \
    "$@"
say "pushed $IMAGE"
