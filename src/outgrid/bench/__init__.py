"""Measurements that anybody can run again: each prints its ratio to a reference measured beside it
and checks the answer."""

BENCHES = {
    "core": "plain, blocked and out-of-core rates of one kernel, at a multiple of memory",
    "io": "our queue beside fio or plain system calls: the same requests on the same file",
}
