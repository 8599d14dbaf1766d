include:
  - inc.one
inc one: test.nop
