# The images of docker-compose.yml: `--target locust` makes Locust's; the last stage, which is made by default, the worker's.
FROM python:3.13.16-slim-trixie AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --create-home --uid 10001 worker
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY segmented segmented
COPY workers workers
COPY bench bench

FROM base AS locust
RUN pip install --no-cache-dir '.[cli,workers,postgres,bench]'
USER 10001
CMD ["locust", "-f", "bench/scenarios/take_orders.py"]

FROM base AS worker
RUN pip install --no-cache-dir '.[cli,workers,postgres]'
# A number, so that Kubernetes can see that it is not root.
USER 10001
CMD ["celery", "-A", "segmented.celery.app", "worker", "--loglevel", "INFO"]
