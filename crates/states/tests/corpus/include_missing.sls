include:
  - inc.missing
own: test.nop
