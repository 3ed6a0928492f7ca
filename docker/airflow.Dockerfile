# Airflow, this provider and Spark in one image. The standalone master and worker run from it too: driver and executors then
# have the same Spark, Delta, Python and user id, and the shared warehouse volume needs no change of owner.
ARG AIRFLOW_VERSION=3.3.2
FROM apache/airflow:${AIRFLOW_VERSION}-python3.11

# Docker forgets the ARG before FROM.
ARG AIRFLOW_VERSION

USER root
# Java for Spark; procps because Spark's scripts call ps.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o airflow -g root -m 0775 /opt/warehouse /opt/airflow/auth
USER airflow

WORKDIR /opt/airflow/provider
COPY --chown=airflow:root pyproject.toml README.md LICENSE NOTICE ./
COPY --chown=airflow:root airflow_mv_provider ./airflow_mv_provider
COPY --chown=airflow:root spark_apps ./spark_apps

# Naming Airflow's own version keeps pip from changing it. constraints.txt is not used: the image has pins of its own.
RUN pip install --no-cache-dir \
    "apache-airflow==${AIRFLOW_VERSION}" "pyspark==4.2.0" "pyspark-client==4.2.0" ".[postgres]" \
    && AMV_SOURCE_DATABASES=postgresql amv warm-up

WORKDIR /opt/airflow
