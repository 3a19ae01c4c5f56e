# SGLang's official CUDA image with the JetSpec plugin. Nothing of SGLang's is changed.
#   docker build --file deploy/docker/engine-gpu.Dockerfile --tag jetspec-engine-gpu:0.1.0 .
# The full image, not `-runtime`: FlashInfer compiles kernels at first use and needs nvcc.
ARG BASE=docker.io/lmsysorg/sglang:v0.5.23-cu130
ARG BUILD_BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BUILD_BASE} AS wheel
COPY pyproject.toml README.md LICENSE /src/
COPY jetspec_sglang /src/jetspec_sglang
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM ${BASE}
COPY --from=wheel /wheels /wheels
# Every dependency of the plugin is one of SGLang's own. --no-index: pip installs the plugin alone,
# and fails rather than change a version that SGLang's image came with.
RUN python3 -m pip install --no-cache-dir --break-system-packages --no-index /wheels/*.whl \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /cache jetspec \
    && install --directory --owner jetspec --group jetspec /cache
COPY --chmod=755 deploy/docker/engine-entrypoint.sh /usr/local/bin/engine-entrypoint
# Everything that can be made again lies in /cache: weights, compiled kernels.
ENV HOME=/cache \
    XDG_CACHE_HOME=/cache \
    JETSPEC_CACHE=/cache/jetspec \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /cache
EXPOSE 30000
# /ready costs nothing; /health makes the model generate a token.
HEALTHCHECK --interval=15s --timeout=5s --start-period=15m \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:30000/ready', timeout=4)"]
ENTRYPOINT ["engine-entrypoint"]
