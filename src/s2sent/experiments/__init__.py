"""The paper, rerun: what to run as data, the store of finished runs, the runner, the report."""
