# The worker service of docker-compose.yml.
FROM python:3.13-slim
RUN useradd --create-home worker
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY segmented segmented
COPY workers workers
COPY bench bench
RUN pip install --no-cache-dir '.[workers,postgres]'
USER worker
CMD ["celery", "-A", "workers", "worker", "--loglevel", "INFO"]
