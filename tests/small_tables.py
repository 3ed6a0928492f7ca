"""How Spark is set up for tests: tiny tables and many plans, in one JVM that lives through hundreds of both."""

CONFS = {
    "spark.sql.shuffle.partitions": "2",
    # Compiling each plan costs more than it gives.
    "spark.sql.adaptive.enabled": "false",  # three jobs for one; a refresh of larger tables enables it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.buffer.pageSize": "1m",  # 64 MB for each sort of ten rows keep the collector busy
    "spark.databricks.delta.writeChecksumFile.enabled": "false",  # its file costs more than the commit
    # The JVM may not keep what it knows of each table and plan.
    "spark.databricks.delta.delta.log.cacheSize": "20",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "50",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM would list five files by 10,000 tasks
    "spark.sql.ui.explainMode": "simple",  # of each statement, for a page that nobody looks at
}
# A heap and a metaspace that need not grow save a tenth of the time.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=4 -XX:+UseSerialGC -Xms4g -Xmn2g -XX:MetaspaceSize=400m -Ddelta.log.cacheSize=20"
    # So much code is compiled that the cache of it would be searched for what is used no longer, and be filled again.
    " -XX:ReservedCodeCacheSize=512m -XX:-UseCodeCacheFlushing"
    # Hadoop runs chmod or readlink for each file that it creates or renames: five programs a second.
    " -Djdk.lang.Process.launchMechanism=VFORK"
)
DRIVER_MEMORY = "4g"
# For JVMs that live for seconds: their code is not compiled twice. What is on a command line comes after it. The cache
# of code is as large as it would be with both compilers: several refreshes at once fill the 48 MB of one.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"}
