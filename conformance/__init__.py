"""What a release must satisfy: the pytest plugin, the policy, and one test module per subject."""
