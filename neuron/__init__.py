"""The Neuron machine: what it has, whose cores are whose, its device behind one seam, a stand-in to rehearse with."""
