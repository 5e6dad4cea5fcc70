"""From what was found to a message: rules, episodes, what a message says, and the channels it goes through."""
