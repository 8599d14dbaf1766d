one:
	test.nop
