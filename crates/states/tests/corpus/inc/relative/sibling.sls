sibling: test.nop
