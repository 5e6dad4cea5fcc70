"""Attribution of a request's time to stages: arrays in, arrays out, many traces at once."""
