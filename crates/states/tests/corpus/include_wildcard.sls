include:
  - inc.re*
own: test.nop
