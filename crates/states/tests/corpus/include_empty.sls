include:
  - inc.empty
own: test.nop
