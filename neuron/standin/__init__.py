"""A stand-in for a Neuron device and its software, which computes on the CPU: to rehearse, never to judge."""
