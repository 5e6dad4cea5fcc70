"""Finding the moment from which requests are slower than requests of their kind used to be. Arrays in, arrays out."""
