"""`jetspec bench load`, `step` and `soak`: servers, controller and load in one command."""
