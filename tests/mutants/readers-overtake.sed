# rule: no reader joins what is kept with nobody inside, once a writer was heard of
# file: src/local_queue/shared/groups.rs
# sight: model readers
s/self.is_good() && matches!(self.others(), Others::NoneWaits)/self.is_good() \&\& (self.members == 0 || matches!(self.others(), Others::NoneWaits))/
