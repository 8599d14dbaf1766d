one: test.nosuch
two: test.nop
