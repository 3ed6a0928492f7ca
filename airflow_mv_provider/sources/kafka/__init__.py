"""A topic of Kafka as source."""
