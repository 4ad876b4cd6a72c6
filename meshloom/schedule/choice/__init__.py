"""Which schedule a loop gets: what can be asked for, what each costs, the automatic choice, and why."""
