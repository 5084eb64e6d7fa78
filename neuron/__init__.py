"""The Neuron machine: what it has, whose cores are whose, its device behind one seam, and a stand-in to rehearse with."""
