"""A model of Apache Cassandra in memory (``model``), behind the interface of its Python driver (``driver``)."""
