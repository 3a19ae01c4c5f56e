# SGLang's router at the version this project is tested with.
#   docker build --file deploy/docker/router.Dockerfile --tag jetspec-router:0.1.0 .
ARG BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BASE} AS build
COPY constraints.txt /src/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/router \
    && /opt/router/bin/pip install --no-cache-dir --constraint /src/constraints.txt sglang-router \
    && /opt/router/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/router /opt/router
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp \
        --shell /usr/sbin/nologin jetspec
COPY --chmod=755 deploy/docker/router-entrypoint.sh /usr/local/bin/router-entrypoint
ENV PATH=/opt/router/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 30000 29000
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:30000/liveness', timeout=4)"]
ENTRYPOINT ["router-entrypoint"]
