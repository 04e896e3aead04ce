# The images of docker-compose.yml: `--target locust` makes Locust's; the last stage, made by default, is the worker's.
# Packages come from lock files with hashes (`make locked` writes them), as wheels only, and before any source, so a change
# of the library installs no package again. What builds and installs stays in its stage: the images have no pip.
FROM python:3.13.16-slim-trixie AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/opt/segmented/bin:$PATH

FROM base AS wheel
WORKDIR /build
COPY requirements/build.txt ./
RUN python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r build.txt
COPY pyproject.toml README.md LICENSE ./
COPY segmented segmented
RUN /opt/build/bin/hatchling build --target wheel --directory dist

FROM base AS worker-packages
RUN python -m venv --without-pip /opt/segmented && python -m venv /opt/pip
COPY requirements/worker.txt ./
RUN /opt/pip/bin/pip --python /opt/segmented install --no-cache-dir --require-hashes --only-binary :all: -r worker.txt
COPY --from=wheel /build/dist /wheel
RUN /opt/pip/bin/pip --python /opt/segmented install --no-cache-dir --no-deps --no-index /wheel/*.whl

FROM base AS locust-packages
RUN python -m venv --without-pip /opt/segmented && python -m venv /opt/pip
COPY requirements/locust.txt ./
RUN /opt/pip/bin/pip --python /opt/segmented install --no-cache-dir --require-hashes --only-binary :all: -r locust.txt
COPY --from=wheel /build/dist /wheel
RUN /opt/pip/bin/pip --python /opt/segmented install --no-cache-dir --no-deps --no-index /wheel/*.whl

FROM base AS image
LABEL org.opencontainers.image.title="segmented" \
      org.opencontainers.image.version="0.3.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/python:3.13.16-slim-trixie"
RUN useradd --create-home --uid 10001 worker
WORKDIR /app

FROM image AS locust
LABEL org.opencontainers.image.description="Buyers for segmented: Locust and its scenarios"
COPY --from=locust-packages /opt/segmented /opt/segmented
COPY bench bench
# A number, so that Kubernetes can see that it is not root.
USER 10001
CMD ["locust", "-f", "bench/scenarios/take_orders.py"]

FROM image AS worker
LABEL org.opencontainers.image.description="Celery workers that take orders from segmented stock pools"
COPY --from=worker-packages /opt/segmented /opt/segmented
COPY workers workers
USER 10001
CMD ["celery", "-A", "workers", "worker", "--loglevel", "INFO"]
