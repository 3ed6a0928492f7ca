"""What belongs to one host or one driver is refused where there are several, with the way out."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.deployment_checks import (
    check_log_store,
    executor_of_several_hosts,
    log_store_confs,
    network_file_system,
)
from airflow_mv_provider.exceptions import MainUnsupportedError

MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:30 / /shared rw,relatime shared:9 - nfs4 filer:/export rw,vers=4.2
31 30 0:31 / /shared/local rw - tmpfs tmpfs rw
32 21 0:32 / /with\040blank rw shared:3 master:1 - cifs //filer/x rw
33 21 0:33 / /sshfs rw - fuse.sshfs anna@host:/ rw
34 21 0:34 / /covered rw - nfs filer:/a rw
35 21 0:35 / /covered rw - ext4 /dev/sdb1 rw
not a mount
"""


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        *(("/mv.db", None), ("/sharedx/mv.db", None), ("/shared/local/mv.db", None), ("/covered/mv.db", None)),
        *(
            ("/shared/mv.db", "nfs4"),
            ("/shared/deep/er/mv.db", "nfs4"),
            ("/shared", "nfs4"),
            ("/sshfs/x", "fuse.sshfs"),
        ),
        ("/with blank/mv.db", "cifs"),
    ],
)
def test_network_file_system_is_told_by_the_mount_that_a_file_lies_on(file, kind):
    assert network_file_system(MOUNTS, file) == kind


def test_no_mounts_say_nothing():
    assert network_file_system("", "/mv.db") is None


@pytest.mark.parametrize(
    ("executors", "found"),
    [
        *(("", None), ("LocalExecutor", None), ("SequentialExecutor", None), ("my.own.Executor", None)),
        *(("CeleryExecutor", "CeleryExecutor"), ("LocalExecutor, KubernetesExecutor", "KubernetesExecutor")),
        ("LocalExecutor,far:airflow.providers.edge3.executors.EdgeExecutor", "EdgeExecutor"),
        ("airflow.providers.amazon.aws.executors.ecs.AwsEcsExecutor", "AwsEcsExecutor"),
        ("LocalExecutor;team1=CeleryExecutor", "CeleryExecutor"),
    ],
)
def test_executor_that_runs_tasks_elsewhere_is_named(executors, found):
    assert executor_of_several_hosts(executors) == found


@pytest.mark.parametrize(
    ("main", "confs"),
    [
        ("s3://bucket/wh/orders", {}),
        ("s3a://bucket/wh/orders", {}),
        ("s3a://bucket/wh/orders", {"spark.delta.logStore.s3.impl": "io.delta.storage.S3DynamoDBLogStore"}),
        *(
            ("s3a://bucket/wh/orders", {"spark.delta.logStore.s3a.impl": f"io.delta.storage.{name}LogStore"})
            for name in ("S3SingleDriver", "GCS", "HDFS", "Azure", "Local", "FailingS3DynamoDB")
        ),
        (
            "s3a://bucket/wh/orders",
            {"spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore"},
        ),
    ],
    ids=str,
)
def test_main_on_s3_needs_a_log_store_for_several_drivers(main, confs):
    with pytest.raises(MainUnsupportedError) as caught:
        check_log_store(main, confs, is_single_driver=False)

    assert main in str(caught.value)
    assert "AMV_S3_SINGLE_DRIVER" in caught.value.advice
    assert log_store_confs(main)[0] in caught.value.advice
    check_log_store(main, confs, is_single_driver=True)


@pytest.mark.parametrize(
    ("main", "confs"),
    [
        *(("/wh/orders", {}), ("hdfs://nn/wh/orders", {}), ("gs://b/orders", {}), ("abfss://b@a/orders", {})),
        ("s3a://bucket/orders", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}),
        ("s3://bucket/orders", {"spark.delta.logStore.s3.impl": "com.example.TheirLogStore"}),
        ("s3://bucket/orders", {"spark.delta.logStore.class": "com.example.TheirLogStore"}),
    ],
    ids=str,
)
def test_other_places_and_log_stores_are_taken(main, confs):
    check_log_store(main, confs, is_single_driver=False)
