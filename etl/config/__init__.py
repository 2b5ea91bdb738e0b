"""The configuration file, the environment and the secrets as one validated model."""
