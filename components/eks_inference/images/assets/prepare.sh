#!/bin/sh
# First step of an image build, in the AWS CLI's image: is the image there already? If not, log in and lay out the build context.
#
# Reads   IMAGE (registry/repository:tag to make), REGISTRIES (further ECR registries to pull from, may be empty),
#         RECIPE (folder with the Dockerfile and its files), STATE (folder shared with build.sh), DOCKER_CONFIG (folder in it).
# Leaves  $STATE/exists when there is nothing to build; else $STATE/context and $DOCKER_CONFIG/config.json.
set -eu

say() { echo "prepare: $*"; }

# The repository's host is ACCOUNT.dkr.ecr.REGION.amazonaws.com.
region_of() { echo "$1" | cut -d. -f4; }

registry=${IMAGE%%/*}
repository_and_tag=${IMAGE#*/}
repository=${repository_and_tag%:*}
tag=${repository_and_tag##*:}

say "looking for $IMAGE"
if digest=$(
    aws ecr describe-images --region "$(region_of "$registry")" --repository-name "$repository" \
        --image-ids "imageTag=$tag" --query 'imageDetails[0].imageDigest' --output text 2>"$STATE/error"
); then
    say "it is there already as $digest; nothing to build"
    : >"$STATE/exists"
    exit 0
fi
if ! grep -q ImageNotFoundException "$STATE/error"; then
    say "ECR did not answer whether it is there:" >&2
    cat "$STATE/error" >&2
    exit 1
fi

say "it is not there; logging in"
logins=
# shellcheck disable=SC2086  # a list of hosts, which hold no blanks
for host in $(printf "%s\n" "$registry" $REGISTRIES | sort -u); do
    password=$(aws ecr get-login-password --region "$(region_of "$host")")
    login=$(printf 'AWS:%s' "$password" | base64 | tr -d '\n')
    logins="$logins${logins:+,}\"$host\":{\"auth\":\"$login\"}"
    say "logged in to $host"
done
mkdir -p "$DOCKER_CONFIG" "$STATE/context"
(
    umask 077
    printf '{"auths":{%s}}\n' "$logins" >"$DOCKER_CONFIG/config.json"
)

# Copies, because the files of a ConfigMap are links out of its folder, and a build sees only what is inside.
cp "$RECIPE"/* "$STATE/context/"
say "the context is ready: $(cd "$STATE/context" && echo *)"
