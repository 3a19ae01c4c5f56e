# The engine on a CPU with AVX2, with the embedded model and its head inside: to try, to test.
#   docker build --file deploy/docker/engine-host.Dockerfile --tag jetspec-engine-host:0.1.0 .
# About 11 GB: SGLang's package depends on CUDA's libraries, with or without a GPU.
ARG BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BASE}
# g++ stays: kernels are compiled for the CPU that runs them. util-linux: SGLang calls lscpu.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ util-linux \
    && rm -rf /var/lib/apt/lists/*
COPY constraints.txt pyproject.toml README.md LICENSE /src/
COPY jetspec_sglang /src/jetspec_sglang
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --constraint /src/constraints.txt /src
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /cache jetspec \
    && install --directory --owner jetspec --group jetspec /cache
# The embedded model, outside /cache: a volume mounted there would hide it. The head is the package's.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    install --directory /opt/jetspec \
    && model=$(JETSPEC_CACHE=/tmp/making python3 -m jetspec_sglang.embedded) \
    && mv "$model" /opt/jetspec/model \
    && rm -rf /tmp/making \
    && ln -s "$(python3 -c 'from jetspec_sglang.embedded import head_path; print(head_path())')" \
        /opt/jetspec/head
COPY --chmod=755 deploy/docker/engine-entrypoint.sh /usr/local/bin/engine-entrypoint
ENV HOME=/cache \
    XDG_CACHE_HOME=/cache \
    JETSPEC_CACHE=/cache/jetspec \
    JETSPEC_PLATFORM=host \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /cache
# Compiled for the CPU that builds the image; another one compiles its own at the first start.
RUN python3 -c 'from jetspec_sglang.host.kernels.build import library_path; library_path()'
EXPOSE 30000
HEALTHCHECK --interval=15s --timeout=5s --start-period=10m \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:30000/ready', timeout=4)"]
ENTRYPOINT ["engine-entrypoint"]
