"""A stand-in for a Neuron machine that does its work on the CPU, so that code for trn2 can be rehearsed without one."""
