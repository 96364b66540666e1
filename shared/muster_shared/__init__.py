"""What agent, coordinator and command line must agree on: ids, time, devices, messages, errors."""
