inc init: test.nop
