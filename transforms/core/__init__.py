"""The core: everything that must be right for epsilon, without Beam. README.md has the reading order."""
