"""Works out how long a recorded graph takes to deploy, up to the first answer of each model server, from typical times. Pure."""
