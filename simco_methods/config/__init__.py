"""The runner's config: which keys there are, what they allow, and what they are turned into."""
