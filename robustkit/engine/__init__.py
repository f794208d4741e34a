"""The loop that runs attacks: slots, a queue of trials, verdicts, and the short way in for tensors."""
