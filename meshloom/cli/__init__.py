"""The command line: words in, words out; what happens in between is the runner's."""
