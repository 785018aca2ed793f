"""Results of load tests, of whatever tool, as one record: read, compared with each other and with what the sources published."""
