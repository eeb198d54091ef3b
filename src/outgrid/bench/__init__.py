"""Measurements that anybody can run again: each prints its ratio to a reference measured beside it
and checks the answer."""

BENCHES = {
    "core": "rates in cache, in memory and out of core, of one stencil or of all that are measured",
    "io": "our queue beside fio or plain system calls: the same requests on the same file; with "
    "--quick or --full every way to move requests, by size, depth, pattern and folder",
    "all": "every experiment of the papers, their records, figures and one page",
    "tune": "the planner's choice beside the best of an exhaustive search, for several problems",
    "peers": "what one would pick instead, in memory and out of core, on the same grid",
}
