"""Speed and memory of kgem against its peers and against the machine: `python -m bench`."""
