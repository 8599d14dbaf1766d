deeper: test.nop
