#!/bin/bash
# Lets a pod of the proxy go without cutting an answer (preStop): it says that it is not ready, waits until load balancers and
# Services have taken it away, and then until no answer is under way. Arguments: port of Envoy's administration, seconds until
# nobody sends requests any more, seconds in all. The image has bash, and neither curl nor wget.
set -u
admin=$1 leaves=$2 end=$((SECONDS + $3))

ask() { # METHOD PATH
  exec 3<>"/dev/tcp/127.0.0.1/$admin" || return 1
  printf '%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$1" "$2" >&3
  cat <&3
  exec 3>&-
}

ask POST /healthcheck/fail >/dev/null || exit 0 # Envoy is gone already
sleep "$leaves"
while ((SECONDS < end)); do
  active=$(ask GET '/stats?filter=^http\.endpoint\.downstream_rq_active$' | sed -n 's/^http\.endpoint\.downstream_rq_active: \([0-9]*\).*/\1/p')
  [ "${active:-0}" -gt 0 ] || exit 0
  sleep 1
done
