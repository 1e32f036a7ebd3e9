"""Which scheduler a model needs, found out by asking the model: experiments, what they show, and what follows."""
