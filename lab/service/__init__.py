"""The service in miniature: what stands between a request and its answer."""
