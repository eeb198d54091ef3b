"""Measurements that anybody can run again: each prints its ratio to a reference measured beside it
and checks the answer."""
