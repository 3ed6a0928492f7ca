"""The Spark confs by which JVMs are in UTC, whose zone decides times of some formats (`spark.zone`)."""

# Confs for administrators: a user's own extraJavaOptions come after them.
IN_UTC = {f"spark.{role}.defaultJavaOptions": "-Duser.timezone=UTC" for role in ("driver", "executor")}
