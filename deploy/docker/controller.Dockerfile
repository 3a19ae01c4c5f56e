# The budget controller: its own wheel and dependencies, without SGLang, compiler or root.
#   docker build --file deploy/docker/controller.Dockerfile --tag jetspec-controller:0.1.0 .
# Any Debian with python3 and python3-venv can be the base.
ARG BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BASE} AS build
COPY constraints.txt /src/
COPY controller /src/controller
# Another package index: --secret id=pip,src=pip.conf
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/jetspec \
    && /opt/jetspec/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src/controller \
    && /opt/jetspec/bin/pip install --no-cache-dir --constraint /src/constraints.txt \
        "$(echo /wheels/*.whl)[kubernetes]" \
    && /opt/jetspec/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/jetspec /opt/jetspec
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/jetspec-controller \
        --shell /usr/sbin/nologin jetspec \
    && install --directory --owner jetspec --group jetspec /var/lib/jetspec-controller
ENV PATH=/opt/jetspec/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    JETSPEC_CONTROLLER_API__HOST=0.0.0.0 \
    JETSPEC_CONTROLLER_STATE__PATH=/var/lib/jetspec-controller/state.sqlite
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/jetspec-controller
EXPOSE 30900
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:30900/livez', timeout=4)"]
ENTRYPOINT ["jetspec-controller"]
CMD ["run", "--config", "/etc/jetspec/controller.yaml"]
