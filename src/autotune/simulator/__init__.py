"""A simulated vLLM: a performance model, and a server process in front of it that speaks vLLM's HTTP.

Import its modules one by one: the process must listen within half a second of CPU time.
"""
