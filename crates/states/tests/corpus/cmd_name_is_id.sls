echo the id: cmd.run
