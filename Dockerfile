# The command as an image, for machines and CI jobs without Python:
#   docker build -t eks-inference .
#   docker run --rm --user "$(id -u)" -v "$PWD:/work" eks-inference check
FROM public.ecr.aws/docker/library/python:3.13.16-slim-trixie AS build
COPY constraints.txt pyproject.toml README.md LICENSE /source/
COPY components /source/components
RUN pip install --no-cache-dir --prefix=/command --constraint=/source/constraints.txt "/source[doctor]"

FROM public.ecr.aws/docker/library/python:3.13.16-slim-trixie
# `diff` reads revisions with git, also of a clone that belongs to another user.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends git \
  && rm -rf /var/lib/apt/lists/* \
  && git config --system --add safe.directory /work
COPY --from=build /command /usr/local
ENV HOME=/tmp
USER 65532
WORKDIR /work
ENTRYPOINT ["eks-inference"]
