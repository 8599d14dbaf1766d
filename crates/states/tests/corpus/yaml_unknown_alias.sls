one: *nowhere
